"""From the samples of a run to the values that pages, gates and scripts show, each computed once."""
