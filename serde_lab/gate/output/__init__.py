"""Shows comparisons, gates and histories: as JSON documents, and as pages that `report` writes out."""
