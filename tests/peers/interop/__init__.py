"""The cover of table kinds in which the lab and Apache Hudi meet; see `cells`."""
