"""Strategy `arrow`: a record is a row of an Arrow batch, a frame an Arrow IPC message."""
