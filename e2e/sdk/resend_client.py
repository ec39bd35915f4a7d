"""Does what standard input asks for by Resend's Python SDK, and prints what the SDK made of the answer."""
import base64
import datetime
import json
import sys

import resend

job = json.load(sys.stdin)
resend.api_key, resend.api_url = job["key"], job["url"]


def mailbox(a):
    return "%s <%s>" % (a["name"], a["email"]) if a.get("name") else a["email"]


def moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()


def params(letter):
    p = {"from": mailbox(letter["from"])}
    for kind in ("to", "cc", "bcc", "reply_to"):
        if kind in letter:
            p[kind] = [mailbox(a) for a in letter[kind]]
    for name in ("subject", "text", "html", "headers"):
        if name in letter:
            p[name] = letter[name]
    if "tags" in letter:
        p["tags"] = [{"name": t, "value": "1"} for t in letter["tags"]]
    if "send_at" in letter:
        p["scheduled_at"] = moment(letter["send_at"])
    if "template" in letter:
        p["template"] = {"id": letter["template"], "variables": letter.get("data", {})}
    for a in letter.get("attachments", []):
        # Bytes are given as a list of integers, as Resend's examples do.
        file = {"filename": a["name"], "content": list(base64.b64decode(a["content"])), "content_type": a["type"]}
        if "cid" in a:
            file["content_id"] = a["cid"]
        p.setdefault("attachments", []).append(file)
    return p


def options():
    return {"idempotency_key": job["idempotency_key"]} if "idempotency_key" in job else None


def do():
    if job["do"] == "send":
        return resend.Emails.send(params(job["letter"]), options())
    if job["do"] == "batch":
        o = options() or {}
        if job.get("permissive"):
            o["batch_validation"] = "permissive"
        return resend.Batch.send([params(x) for x in job["letters"]], o)
    if job["do"] == "get":
        return resend.Emails.get(job["id"])
    if job["do"] == "update":
        return resend.Emails.update({"id": job["id"], "scheduled_at": moment(job["send_at"])})
    if job["do"] == "cancel":
        return resend.Emails.cancel(job["id"])
    raise SystemExit("no such job: " + job["do"])


try:
    r = dict(do())
    headers = r.pop("http_headers", {})
    print(json.dumps({"status": 200, "body": json.dumps(r), "headers": dict(headers)}))
except resend.exceptions.ResendError as e:
    print(json.dumps({"status": int(e.code), "error": type(e).__name__, "body": e.error_type, "shown": e.message,
                      "headers": dict(e.headers)}))
