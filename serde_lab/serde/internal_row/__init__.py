"""Strategy `internal_row`: a record is RFC-84's typed binary row, a frame the row's bytes."""
