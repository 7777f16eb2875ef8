"""Avro: whole columns as datums and back, schemas (Arrow <-> Avro), containers, Hudi's own schemas."""
