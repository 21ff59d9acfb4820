"""From files of people to checked rows. Imports common alone."""
