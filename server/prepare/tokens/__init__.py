"""From rows to token ids and what is trained. Imports common and rows."""
