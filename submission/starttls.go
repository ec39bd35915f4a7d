package submission

// startTLS answers the STARTTLS command and goes on with TLS under a new conn, which the library
// serves as a new connection: it can't know anything from before (RFC 3207, 4.2). The library's
// own STARTTLS would stand above conn.
func (c *conn) startTLS(arg string) {
	switch {
	case c.srv.cfg.TLS == nil:
		c.answer(noTLS.reply())
	case c.tls != nil:
		c.answer(alreadyTLS.reply())
	case c.helo == "":
		c.answer(greetFirst.reply())
	case arg != "":
		c.answer(noParameters.reply("STARTTLS")) // RFC 3207, 4
	case c.r < c.w:
		// What came in clear behind STARTTLS could have been put there by anybody, and must not
		// be taken for what the client said under TLS (CVE-2011-0411).
		c.farewell(outOfStep.reply("STARTTLS"))
	default:
		c.answer(readyForTLS.reply())
		c.switchToTLS()
	}
}

func (c *conn) switchToTLS() {
	c.client.login = nil // and all else that was said in clear (RFC 3207, 4.2)
	c.settle()
	if c.flush() != nil || !c.handshake() {
		return
	}
	next := &conn{srv: c.srv, client: c.client, socket: c.socket, raw: c.raw, tls: c.tls}
	next.mu.greeted = true
	c.giveBack()
	c.srv.remove(c, next)
	c.moved = true
	c.finish()
	if !c.srv.afterTLS.Give(next) {
		next.Close()
	}
}
