"""`python -m tpch`."""

from tpch.app import main

raise SystemExit(main())
