// Package intake takes in one message, whatever protocol brings it: package submission (SMTP) and package
// http use it. It knows none of them: it answers with replies, which SMTP sends as they are and HTTP
// translates.
//
// A [Desk] stands for a listener's settings, a [Client] for who submits. A [Message] goes through the files in
// this order:
//
//	desk.go         Begin: the sender, and room for the message
//	account.go      whose mail it is, and whom that may send as
//	quota.go        the limits of its tenant, and small mail that they don't stop: reports, and postmasters' mail
//	admission.go    whether it is taken now, and when it is its turn to be committed
//	message.go      the commit, the end
//	recipients.go   who gets no mail, and whether a domain can take mail
//	extras.go       what a client asks for beside its envelope
//	content.go      the content on its way to a Draft
//	check.go        bare CR and LF, NUL, long lines
//	header.go       the header section: hops, what it lacks, what the relay has to know of it
//	hold.go         when it is released
//	key.go          whether it was accepted before
//	encode.go       Latin-1 in the header section
//	fields.go       the fields that are addressed to this relay, and removed, and those that receivers ask for
//	trace.go        the header fields added on top
//	batch.go        the commit of many messages
//
// config.go has the settings and what is asked of others, replies.go the refusals; memory.go bounds the content
// of all messages that come in, tally.go the records of refusals and the lines about attackers.
package intake
