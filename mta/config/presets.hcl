# What is known of large providers: who runs which mail exchangers, and what they like. These blocks
# are in force unless the file says presets = false; a block of the same name in the file goes before
# its preset, setting by setting.
#
# Providers count by client address, so that the limits are for each source at each site;
# connection_limit stands above all sources and sites together. Few providers publish numbers. Where
# one does, the comment says so; elsewhere the numbers are on the safe side, near those that KumoMTA
# ships (assets/policy-extras/shaping.toml in KumoCorp/kumomta, 2025), and slow start works up to
# them. 100 connections a minute from a source are KumoMTA's default for everybody.

# Gmail and Google Workspace: their exchangers have the same addresses. Google publishes no numbers,
# but refuses by 421-4.7.28 what rises too fast (https://support.google.com/a/answer/81126).
provider "google" {
  mx                             = ["*.google.com", "*.googlemail.com"]
  connection_limit               = 100
  connection_limit_per_source    = 5
  max_deliveries_per_connection  = 50
  max_connection_rate_per_source = "100/min"
}

# outlook.com and hotmail.com (*.olc.protection.outlook.com) and Microsoft 365, where each customer
# is a site of its own (*.mail.protection.outlook.com; *.mx.microsoft with DNSSEC;
# *.mail.protection.office365.us). Its policies have no numbers any more
# (https://sendersupport.olc.protection.outlook.com/pm/Policies).
provider "microsoft" {
  mx                             = ["*.protection.outlook.com", "*.mx.microsoft", "*.protection.office365.us"]
  connection_limit               = 100
  connection_limit_per_source    = 5
  max_deliveries_per_connection  = 50
  max_connection_rate_per_source = "100/min"
}

# Yahoo, AOL, Verizon and others. 20 messages a connection are Yahoo's own word
# (https://senders.yahooinc.com/best-practices).
provider "yahoo" {
  mx                             = ["*.yahoodns.net"]
  connection_limit               = 100
  connection_limit_per_source    = 10
  max_deliveries_per_connection  = 20
  max_connection_rate_per_source = "100/min"
}

# icloud.com, me.com, mac.com (https://support.apple.com/102322, without numbers).
provider "apple" {
  mx                             = ["*.icloud.com"]
  connection_limit               = 100
  connection_limit_per_source    = 10
  max_deliveries_per_connection  = 5
  max_connection_rate_per_source = "100/min"
}

# 25 connections and 1,000 messages on each are Comcast's own word to KumoMTA; how many messages an
# hour depends on the address' reputation, RL000001 (https://spa.xfinity.com/postmaster).
provider "comcast" {
  mx                             = ["*.comcast.net"]
  connection_limit               = 100
  connection_limit_per_source    = 10
  max_deliveries_per_connection  = 500
  max_connection_rate_per_source = "100/min"
}

# GMX, WEB.DE and mail.com (https://postmaster.gmx.net, without numbers).
provider "gmx" {
  mx                             = ["*.gmx.net", "*.web.de", "*.mail.com"]
  connection_limit               = 100
  connection_limit_per_source    = 5
  max_deliveries_per_connection  = 100
  max_connection_rate_per_source = "100/min"
}

# mail.ru, bk.ru, list.ru, inbox.ru and domains of customers. Nothing is published.
provider "mail.ru" {
  mx                             = ["*.mail.ru"]
  connection_limit               = 50
  connection_limit_per_source    = 5
  max_deliveries_per_connection  = 50
  max_connection_rate_per_source = "100/min"
}

# Orange and Wanadoo in France. More than a few connections from an address are refused with OFR
# codes (https://www.postmastery.com/orange-postmaster-smtp-error-codes-ofr/).
provider "orange" {
  mx                             = ["*.orange.fr", "*.wanadoo.fr"]
  connection_limit               = 30
  connection_limit_per_source    = 3
  max_deliveries_per_connection  = 100
  max_connection_rate_per_source = "60/min"
}

# Each region of Mimecast is a site of its own; 10 connections and 100 messages on each are
# Mimecast's own word to KumoMTA.
provider "mimecast" {
  mx                             = ["*.mimecast.com", "*.mimecast.co.za", "*.mimecast-offshore.com"]
  connection_limit               = 200
  connection_limit_per_source    = 10
  max_deliveries_per_connection  = 100
  max_connection_rate_per_source = "100/min"
}

# Proofpoint (*.pphosted.com, each customer a site) and Proofpoint Essentials (*.ppe-hosted.com).
# Nothing is published.
provider "proofpoint" {
  mx                             = ["*.pphosted.com", "*.ppe-hosted.com"]
  connection_limit               = 200
  connection_limit_per_source    = 5
  max_deliveries_per_connection  = 50
  max_connection_rate_per_source = "100/min"
}
