"""A web hook: verifies the signatures of events and reads them, with the libraries that receivers have.

Its argument is JSON: the port, and the keys. It prints a line of JSON for each request: the path, the id, the status,
and what the libraries made of the events. The first request to each path is refused with 503.
"""
import base64
import gzip
import json
import sys
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

warnings.simplefilter("ignore")
job = json.loads(sys.argv[1])

from django.conf import settings  # noqa: E402

settings.configure(ANYMAIL={"SENDGRID_TRACKING_WEBHOOK_VERIFICATION_KEY": job["sendgrid"]}, ALLOWED_HOSTS=["*"])

from anymail.signals import tracking  # noqa: E402
from anymail.webhooks.sendgrid import SendGridTrackingWebhookView  # noqa: E402
from cloudevents.http import from_dict  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: E402
from django.test import RequestFactory  # noqa: E402
from sendgrid.helpers.eventwebhook import EventWebhook, EventWebhookHeader  # noqa: E402
from standardwebhooks.webhooks import Webhook  # noqa: E402


def standard(headers, body):
    return Webhook(job["shared"]).verify(body, headers)


def asymmetric(headers, body):
    signed = b"%s.%s.%s" % (headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body)
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(job["public"].removeprefix("whpk_")))
    for signature in headers["webhook-signature"].split(" "):
        version, _, text = signature.partition(",")
        if version == "v1a":
            key.verify(base64.b64decode(text), signed)
            return json.loads(body)
    raise ValueError("there is no signature v1a")


def cloudevents(headers, body):
    if headers["Content-Type"] != "application/cloudevents-batch+json":
        raise ValueError("the type of the batch is " + headers["Content-Type"])
    events = [from_dict(e) for e in standard(headers, body)]
    return [{**e.get_attributes(), "data": e.get_data()} for e in events]


def sendgrid(headers, body):
    lower = {k.lower(): v for k, v in headers.items()}
    hook = EventWebhook(job["sendgrid"])
    signature, timestamp = (lower[name.lower()] for name in (EventWebhookHeader.SIGNATURE, EventWebhookHeader.TIMESTAMP))
    if not hook.verify_signature(body.decode(), signature, timestamp):
        raise ValueError("the signature does not verify")
    if hook.verify_signature(body.decode() + " ", signature, timestamp):
        raise ValueError("the signature verifies another body")
    return json.loads(body)


heard = threading.local()


def hear(sender, event, esp_name, **kwargs):
    heard.events.append({
        "type": event.event_type, "id": event.event_id, "recipient": event.recipient, "message": event.message_id, "tags": event.tags,
        "metadata": event.metadata, "reject_reason": event.reject_reason, "reply": event.mta_response,
        "timestamp": event.timestamp.isoformat()})


tracking.connect(hear)


def anymail(headers, body):
    heard.events = []
    fields = {"HTTP_" + k.upper().replace("-", "_"): v for k, v in headers.items() if k.lower().startswith("x-twilio")}
    request = RequestFactory().post("/anymail", data=body, content_type="application/json", secure=True, **fields)
    answer = SendGridTrackingWebhookView.as_view()(request)
    if answer.status_code != 200:
        raise ValueError("Anymail answers %d" % answer.status_code)
    return heard.events


readers = {"/standard": standard, "/asymmetric": asymmetric, "/cloudevents": cloudevents, "/sendgrid": sendgrid, "/anymail": anymail}
lock = threading.Lock()
met = set()


class Hook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        line = {"path": self.path, "id": self.headers.get("webhook-id"), "type": self.headers["Content-Type"], "status": 200}
        with lock:
            if self.path not in met:
                met.add(self.path)
                line["status"] = 503
        if line["status"] == 200:
            try:
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                line["events"] = readers[self.path](self.headers, body)
            except Exception as e:
                line.update(status=400, error="%s: %s" % (type(e).__name__, e))
        with lock:
            print(json.dumps(line), flush=True)
        self.send_response(line["status"])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", job["port"]), Hook).serve_forever()
