"""Strategy `pickle`: a record is a Python object, a frame a pickle of protocol 5."""
