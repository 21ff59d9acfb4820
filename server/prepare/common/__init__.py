"""What the dataset helper's modules share. Imports no other room."""
