// Does what standard input asks for by SendGrid's SDK for Node, and prints what the SDK made of the answer.
'use strict';
const sendgrid = require('@sendgrid/mail');

const job = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.warn = () => {}; // "API key does not start with SG."
sendgrid.setApiKey(job.key);
sendgrid.client.setDefaultRequest('baseUrl', job.url);

function message(letter) {
  const m = { from: letter.from, subject: letter.subject, text: letter.text, html: letter.html };
  const substitutions = (values) => Object.fromEntries(Object.entries(values).map(([k, v]) => [k, v]));
  if (letter.recipients) {
    m.substitutionWrappers = ['-', '-'];
    m.personalizations = letter.recipients.map((r) => ({
      to: r.to, cc: r.cc, bcc: r.bcc, customArgs: r.meta, dynamicTemplateData: r.data,
      substitutions: r.values && substitutions(r.values), substitutionWrappers: ['-', '-'],
    }));
  } else {
    m.to = letter.to; m.cc = letter.cc; m.bcc = letter.bcc; m.customArgs = letter.meta;
  }
  if (letter.reply_to) m.replyToList = letter.reply_to;
  m.headers = letter.headers;
  m.categories = letter.tags;
  m.sendAt = letter.send_at;
  m.batchId = letter.batch;
  m.templateId = letter.template;
  if (letter.tracking) m.trackingSettings = { openTracking: { enable: true } };
  if (letter.sandbox) m.mailSettings = { sandboxMode: { enable: true } };
  m.attachments = (letter.attachments || []).map((a) => ({
    content: a.content, filename: a.name, type: a.type,
    disposition: a.cid ? 'inline' : 'attachment', content_id: a.cid,
  }));
  return m;
}

function act() {
  switch (job.do) {
    case 'send': return sendgrid.send(message(job.letter));
    case 'batch_id': return sendgrid.client.request({ method: 'POST', url: '/v3/mail/batch' });
    case 'cancel': return sendgrid.client.request({
      method: 'POST', url: '/v3/user/scheduled_sends', body: { batch_id: job.id, status: 'cancel' } });
    default: throw new Error('no such job: ' + job.do);
  }
}

act().then(([r]) => {
  const body = typeof r.body === 'string' ? r.body : JSON.stringify(r.body);
  console.log(JSON.stringify({ status: r.statusCode, body, headers: r.headers }));
}, (e) => {
  if (!e.response) throw e;
  console.log(JSON.stringify({ status: e.code, error: e.constructor.name, body: JSON.stringify(e.response.body),
    shown: e.toString(), headers: e.response.headers }));
});
