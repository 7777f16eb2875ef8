"""Avro: converts columns to datums and back, maps schemas (Arrow <-> Avro), and has Hudi's own schemas."""
