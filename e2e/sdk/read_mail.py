"""Reads a message from standard input and prints what a mail program would show of it."""
import base64
import email
import email.policy
import json
import sys

m = email.message_from_binary_file(sys.stdin.buffer, policy=email.policy.default)


def addresses(name):
    return [{"email": a.addr_spec, "name": a.display_name} for v in m.get_all(name, []) for a in v.addresses]


def structure(part):
    if part.is_multipart():
        return [part.get_content_type()] + [structure(p) for p in part.iter_parts()]
    return part.get_content_type()


out = {kind.lower().replace("-", "_"): addresses(kind) for kind in ("From", "To", "Cc", "Bcc", "Reply-To")}
out["subject"] = m["Subject"]
out["headers"] = {k: str(v) for k, v in m.items()}
out["structure"] = structure(m)
out["files"], out["defects"] = [], [repr(d) for p in m.walk() for d in p.defects]
for part in m.walk():
    if part.is_multipart():
        continue
    kind, disposition = part.get_content_type(), part.get_content_disposition()
    if disposition is None and kind in ("text/plain", "text/html"):
        out[kind] = part.get_content()
        continue
    out["files"].append({
        "name": part.get_filename(), "type": kind, "cid": (part["Content-ID"] or "").strip("<>"),
        "disposition": disposition, "content": base64.b64encode(part.get_payload(decode=True)).decode()})
print(json.dumps(out))
