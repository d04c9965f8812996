"""A small shop with an HTTP API, to be called by tools: `python shop.py` serves it on port 8600."""

import json
import os
import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

KEY = os.environ.get("SHOP_KEY", "open-sesame")
ITEMS = [
    {"id": 1, "name": "hammer", "price": 12.5, "tags": ["steel", "hand"]},
    {"id": 2, "name": "drill", "price": 89.0, "tags": ["power"]},
    {"id": 3, "name": "nails", "price": 3.2, "tags": ["steel"]},
]


class Shop(BaseHTTPRequestHandler):
    """Answers the operations of shop.yaml."""

    orders: ClassVar[dict] = {}

    def do_GET(self):
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path == "/v1/items":
            most = float(query.get("max_price", ["inf"])[0])
            tags = set(query.get("tag", []))
            self.say(200, [item for item in ITEMS if item["price"] <= most and tags <= set(item["tags"])])
        elif found := re.fullmatch(r"/v1/items/(\d+)", path):
            item = next((item for item in ITEMS if item["id"] == int(found[1])), None)
            self.say(200, item) if item else self.say(404, {"error": f"there is no item {found[1]}"})
        else:
            self.say(404, {"error": "no such page"})

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/orders":
            order["id"] = len(self.orders) + 1
            self.orders[order["id"]] = order
            self.say(201, order)
        else:
            self.say(404, {"error": "no such page"})

    def do_DELETE(self):
        found = re.fullmatch(r"/v1/orders/(\d+)", self.path)
        gone = self.orders.pop(int(found[1]), None) if found else None
        self.say(204) if gone else self.say(404, {"error": "there is no such order"})

    def say(self, status, value=None):
        if self.headers.get("X-API-Key") != KEY:
            status, value = 401, {"error": "who are you?"}
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args, **kwargs):
        pass


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", 8600), Shop).serve_forever()
