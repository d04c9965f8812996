"""model_formats: how a scripted model speaks, a module for each wire format of the providers."""
