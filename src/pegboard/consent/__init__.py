"""consent: what is remembered of people's answers, so that each yes is used once."""
