"""The indexes that map a record key to its file group: buckets, consistent hashing, Bloom filters."""
