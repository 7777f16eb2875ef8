"""Files and instants of a Hudi table: storage, timeline, base and log files, services, validation."""
