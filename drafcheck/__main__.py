"""``python -m drafcheck``."""

from drafcheck.entry import main

if __name__ == "__main__":
    main()
