"""Does what standard input asks for by Django's mail through Anymail, as its SendGrid or its Resend backend."""
import base64
import datetime
import json
import sys
import warnings

from django.conf import settings

warnings.simplefilter("ignore")
job = json.load(sys.stdin)
esp = job["esp"]
settings.configure(
    EMAIL_BACKEND="anymail.backends.%s.EmailBackend" % esp,
    ANYMAIL={
        "SENDGRID_API_KEY": job["key"], "SENDGRID_API_URL": job["url"] + "/v3/", "SENDGRID_MERGE_FIELD_FORMAT": "-{}-",
        "RESEND_API_KEY": job["key"], "RESEND_API_URL": job["url"] + "/",
    })

from anymail.exceptions import AnymailError  # noqa: E402
from anymail.message import AnymailMessage  # noqa: E402
from email.mime.base import MIMEBase  # noqa: E402
from email.headerregistry import Address  # noqa: E402


def mailbox(a):
    return str(Address(a.get("name", ""), addr_spec=a["email"]))


def send(letter):
    m = AnymailMessage(letter.get("subject", ""), letter.get("text", ""), mailbox(letter["from"]))
    entries = letter.get("recipients", [letter])
    for kind in ("to", "cc", "bcc"):
        setattr(m, kind, [mailbox(a) for e in entries for a in e.get(kind, [])])
    m.reply_to = [mailbox(a) for a in letter.get("reply_to", [])]
    m.extra_headers = dict(letter.get("headers", {}))
    if "html" in letter:
        m.attach_alternative(letter["html"], "text/html")
    for a in letter.get("attachments", []):
        content = base64.b64decode(a["content"])
        if "cid" in a:
            part = MIMEBase(*a["type"].split("/"))
            part.set_payload(a["content"])
            part["Content-Transfer-Encoding"] = "base64"
            part.add_header("Content-Disposition", "inline", filename=a["name"])
            part["Content-ID"] = "<%s>" % a["cid"]
            m.attach(part)
        else:
            m.attach(a["name"], content, a["type"])
    if "tags" in letter:
        m.tags = letter["tags"]
    if "meta" in letter:
        m.metadata = letter["meta"]
    if "send_at" in letter:
        m.send_at = datetime.datetime.fromtimestamp(letter["send_at"], datetime.timezone.utc)
    if letter.get("tracking"):
        m.track_opens = True
    if "recipients" in letter:
        if esp == "sendgrid":
            m.merge_data = {e["to"][0]["email"]: e["values"] for e in entries}
        else:
            m.merge_metadata = {e["to"][0]["email"]: e["values"] for e in entries}
    if "batch" in letter:
        m.esp_extra = {"batch_id": letter["batch"]}
    m.send()
    status = m.anymail_status
    return {"status": status.esp_response.status_code, "body": status.esp_response.text,
            "headers": dict(status.esp_response.headers),
            "ids": {k: v.message_id for k, v in status.recipients.items()}}


try:
    print(json.dumps(send(job["letter"])))
except AnymailError as e:
    print(json.dumps({"status": getattr(e, "status_code", None) or 0, "error": type(e).__name__,
                      "body": e.response.text if e.response is not None else "", "shown": str(e), "headers": {}}))
