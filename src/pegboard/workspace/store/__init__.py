"""Store: the documents of all spaces in a database that speaks SQL, whichever it is."""
