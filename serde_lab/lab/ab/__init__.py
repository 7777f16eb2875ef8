"""Measures two versions of the code alternately, in one sitting."""
