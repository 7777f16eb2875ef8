"""Apache Hudi as a reader and as an arm, what it and the lab do alike, and how other formats are set up."""
