# An hour of ordinary operations: what operators wish for, each with the command that does it. TestWishes runs it.

# why mail waits, at a glance
mta status

# why the mail for a domain waits
mta explain dead.example

# the dead domain's mail goes to its new host, what waits included
mta rule add --domain dead.example --host mx.new.example reroute --reason "they moved"

# a provider is in trouble: only a little mail for it, for an hour
mta rule add --provider big --for 1h slow 2/h --reason "their outage"

# everything that comes for a mistyped domain bounces
mta rule add --domain typo.example bounce --reason "nobody is there"

# a customer's new mail waits for a look at it
mta rule add --tenant acme hold --reason "a new list"

# an address is taken out of its pool
mta pools weight default out-2 0 --reason "listed at a block list"

# the hosts that asked to come again are tried now
mta queue retry --waits-for greylisted --now

# mail that a full mailbox keeps is given up
mta queue bounce --reply "over quota"

# a campaign goes on slowly, while it runs
mta rule add --campaign autumn slow 2/h --reason "the call centre is full"

# why mail bounced today
mta bounce top --since 1d
