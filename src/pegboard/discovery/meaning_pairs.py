"""Meaning pairs: how well an embedder knows meanings, measured with sentences that mean the same in other words.

Each request has, apart from small words, no word in common with the description of the tool that serves it. An embedder
that knows meanings finds the partner of most of them; one that compares letters or knows nothing finds it by chance.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pegboard.discovery.search.ranking import Vector

_PAIRS: Final = (
    ("Send cash to a friend.", "Moves funds between accounts."),
    ("How warm is it outside?", "Current temperature and weather of a place."),
    ("Throw away old mail.", "Deletes messages past an age."),
    ("Which trains leave tomorrow?", "Timetable of railway departures."),
    ("Make this picture smaller.", "Resizes an image."),
    ("What is Apple worth today?", "Quotes the price of a share."),
    ("Put two documents into one.", "Merges PDF files."),
    ("Say it in French.", "Translates text into another language."),
    ("Remind me at noon.", "Creates a calendar event with an alarm."),
    ("Who wrote this song?", "Looks up the composer of a track."),
    ("Book a room for two nights.", "Reserves a hotel stay."),
    ("Find a cheap flight.", "Searches for airline tickets by price."),
    ("Report a bug.", "Opens an issue in a repository."),
    ("Undo my last change.", "Reverts a commit."),
    ("How far is it to the station?", "Calculates the distance of a route."),
    ("What can I cook with eggs?", "Finds recipes by ingredients."),
    ("Is this review positive?", "Analyses the sentiment of a comment."),
    ("Cut the silence out of a recording.", "Trims audio."),
    ("Show me who is logged in.", "Lists active sessions of users."),
    ("Why is the server slow?", "Retrieves performance metrics of a host."),
    ("Lock the front door.", "Controls a smart home device."),
    ("Read the page aloud.", "Synthesizes speech from written words."),
    ("Is my parcel here yet?", "Tracks the delivery status of a shipment."),
    ("Give Ann access to the folder.", "Grants permissions on a directory."),
)
_BY_CHANCE: Final = 0.1  # share of the pairs that an embedder without any knowledge finds at most

PAIRED_TEXTS: Final = (*(request for request, _ in _PAIRS), *(description for _, description in _PAIRS))


def knowledge_of(vectors: Vector) -> float:
    """Return how well an embedder knows meanings, 0 … 1.

    Args:
        vectors: of `PAIRED_TEXTS`, one row each, of length 1.
    """
    requests, descriptions = np.split(vectors, 2)
    cosines = requests @ descriptions.T
    places = np.arange(len(_PAIRS))
    found = ((cosines.argmax(axis=1) == places).mean() + (cosines.argmax(axis=0) == places).mean()) / 2
    return max(0.0, (float(found) - _BY_CHANCE) / (1 - _BY_CHANCE))
