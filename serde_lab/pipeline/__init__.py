"""Writes records to a Hudi table and reads them back: stages, exchanges, coordinator, reads, table
services.
"""
