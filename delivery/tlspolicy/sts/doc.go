// Package sts implements the sender's side of MTA-STS (RFC 8461): it discovers, fetches, caches and refreshes the
// policies by which domains demand verified TLS of the hosts that mail for them is sent to.
//
// Order of use: New with a resolver, an HTTPS transport and a store; Run in a goroutine of the caller's; then Known and
// Ask (or Lookup, which waits) for each domain that mail is for. A caller that can't satisfy a policy calls Doubt, so
// that a policy which has changed is found before the next attempt. The package knows nothing of SMTP: the caller
// matches hosts with Policy.Match and verifies their certificates.
//
// Long-lived goroutines: Run, which refreshes policies ahead of their expiry and writes changes to the store. Look-ups
// and fetches have a goroutine each while they run, bounded in number; Run waits for them when its context ends.
package sts
