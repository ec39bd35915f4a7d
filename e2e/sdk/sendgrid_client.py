"""Does what standard input asks for by SendGrid's Python SDK, and prints what the SDK made of the answer."""
import json
import sys

import sendgrid
from python_http_client.exceptions import HTTPError
from sendgrid.helpers.mail import (
    Attachment, Bcc, BatchId, Category, Cc, Content, ContentId, CustomArg, Disposition, DynamicTemplateData,
    Email, FileContent, FileName, FileType, From, Header, HtmlContent, Mail, MailSettings, OpenTracking,
    Personalization, PlainTextContent, ReplyTo, SandBoxMode, SendAt, Subject, Substitution, TemplateId, To,
    TrackingSettings)

job = json.load(sys.stdin)
client = sendgrid.SendGridAPIClient(api_key=job["key"], host=job["url"])


def personalization(entry):
    p = Personalization()
    for kind, cls in (("to", To), ("cc", Cc), ("bcc", Bcc)):
        for a in entry.get(kind, []):
            p.add_email(cls(a["email"], a.get("name")))
    for name, value in entry.get("values", {}).items():
        p.add_substitution(Substitution("-%s-" % name, value))
    if "data" in entry:
        p.dynamic_template_data = DynamicTemplateData(entry["data"])
    for name, value in entry.get("meta", {}).items():
        p.add_custom_arg(CustomArg(name, value))
    return p


def mail(letter):
    m = Mail(from_email=From(letter["from"]["email"], letter["from"].get("name")))
    if "subject" in letter:
        m.subject = Subject(letter["subject"])
    for entry in letter.get("recipients", [letter]):
        m.add_personalization(personalization(entry))
    if "text" in letter:
        m.add_content(PlainTextContent(letter["text"]))
    if "html" in letter:
        m.add_content(HtmlContent(letter["html"]))
    if "template" in letter:
        m.template_id = TemplateId(letter["template"])
    for a in letter.get("reply_to", []):
        m.reply_to = ReplyTo(a["email"], a.get("name"))
    for name, value in letter.get("headers", {}).items():
        m.add_header(Header(name, value))
    for a in letter.get("attachments", []):
        file = Attachment(FileContent(a["content"]), FileName(a["name"]), FileType(a["type"]))
        file.disposition = Disposition("inline" if "cid" in a else "attachment")
        if "cid" in a:
            file.content_id = ContentId(a["cid"])
        m.add_attachment(file)
    for tag in letter.get("tags", []):
        m.add_category(Category(tag))
    if "send_at" in letter:
        m.send_at = SendAt(letter["send_at"])
    if "batch" in letter:
        m.batch_id = BatchId(letter["batch"])
    if letter.get("tracking"):
        m.tracking_settings = TrackingSettings(open_tracking=OpenTracking(enable=True))
    if letter.get("sandbox"):
        m.mail_settings = MailSettings(sandbox_mode=SandBoxMode(True))
    return m


def do():
    if job["do"] == "send":
        return client.send(mail(job["letter"]))
    if job["do"] == "batch_id":
        return client.client.mail.batch.post()
    if job["do"] == "cancel":
        return client.client.user.scheduled_sends.post(request_body={"batch_id": job["id"], "status": "cancel"})
    raise SystemExit("no such job: " + job["do"])


try:
    r = do()
    print(json.dumps({"status": r.status_code, "body": r.body.decode(), "headers": dict(r.headers)}))
except HTTPError as e:
    print(json.dumps({"status": e.status_code, "error": type(e).__name__, "body": e.body.decode(),
                      "shown": "; ".join("%s: %s" % (x["field"], x["message"]) for x in e.to_dict["errors"]),
                      "headers": dict(e.headers)}))
