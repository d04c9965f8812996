"""model_formats: the wire formats of the providers, used by the scripted model; one module each."""
