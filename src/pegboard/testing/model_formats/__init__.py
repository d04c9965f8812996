"""model_formats: the wire formats of the providers, in which the scripted model answers; one module each."""
