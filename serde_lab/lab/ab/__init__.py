"""Measures two versions of the code in turns in one sitting."""
