"""Other people's clients against the server: what they can do has to work, over every transport."""
