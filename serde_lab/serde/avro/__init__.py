"""Strategy `avro`: a record is Hudi's Avro record, a frame an envelope and an Avro payload."""
