// Does what standard input asks for by Resend's SDK for Node, and prints what the SDK made of the answer.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

// An import of ES modules doesn't look at NODE_PATH.
const { Resend } = createRequire(import.meta.url)('resend');
const job = JSON.parse(readFileSync(0, 'utf8'));
const resend = new Resend(job.key, { baseUrl: job.url });

const mailbox = (a) => (a.name ? `${a.name} <${a.email}>` : a.email);
const moment = (seconds) => new Date(seconds * 1000).toISOString();

function email(letter) {
  return {
    from: mailbox(letter.from),
    to: letter.to?.map(mailbox), cc: letter.cc?.map(mailbox), bcc: letter.bcc?.map(mailbox),
    replyTo: letter.reply_to?.map(mailbox),
    subject: letter.subject, text: letter.text, html: letter.html, headers: letter.headers,
    tags: letter.tags?.map((t) => ({ name: t, value: '1' })),
    scheduledAt: letter.send_at && moment(letter.send_at),
    template: letter.template && { id: letter.template, variables: letter.data },
    attachments: letter.attachments?.map((a) => ({
      filename: a.name, content: Buffer.from(a.content, 'base64'), contentType: a.type, contentId: a.cid })),
  };
}

function act() {
  const options = { idempotencyKey: job.idempotency_key };
  switch (job.do) {
    case 'send': return resend.emails.send(email(job.letter), options);
    case 'batch':
      if (job.permissive) options.batchValidation = 'permissive';
      return resend.batch.send(job.letters.map(email), options);
    case 'get': return resend.emails.get(job.id);
    case 'update': return resend.emails.update({ id: job.id, scheduledAt: moment(job.send_at) });
    case 'cancel': return resend.emails.cancel(job.id);
    default: throw new Error('no such job: ' + job.do);
  }
}

const { data, error, headers } = await act();
console.log(JSON.stringify(error
  ? { status: error.statusCode ?? 0, error: error.name, body: error.name, shown: error.message, headers }
  : { status: 200, body: JSON.stringify(data), headers }));
