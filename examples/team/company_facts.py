"""What the researcher can look up."""

FACTS = {"Acme": "40 people, founded in 1998", "Globex": "9,000 people, founded in 1971"}


def look_up(company: str) -> str:
    """Look up what is known of a company."""
    return f"{company}: {FACTS.get(company, 'nothing is known')}"
