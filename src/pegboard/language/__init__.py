"""language: stop words of natural languages, and the detection of a text's language by them."""
