"""What a record is: types, schema, keys, ordering values, and how schemas change."""
