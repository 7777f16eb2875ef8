"""What a record is: envelope fields, schemas (Arrow <-> Avro), key generation, mergers.

Owns the meaning of a HoodieRecord, vectorised over batches. Must not know strategies, tables, Spark.
"""
