"""``python -m drafcheck``."""

from drafcheck.cli import main

if __name__ == "__main__":
    main()
