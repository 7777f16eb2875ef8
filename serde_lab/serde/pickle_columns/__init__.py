"""Strategy `pickle_columns`: a record is a row of an Arrow batch, a frame a pickle of its columns."""
