package postfix

import (
	"slices"
	"strings"
)

// defaults are those of Postfix 3.7 (postconf -d) that count for a relay. Parameters of transports follow a pattern,
// see defaultOf.
var defaults = map[string]string{
	"queue_directory":                       "/var/spool/postfix",
	"compatibility_level":                   "0",
	"mail_name":                             "Postfix",
	"config_directory":                      "/etc/postfix",
	"myorigin":                              "$myhostname",
	"mydestination":                         "$myhostname, localhost.$mydomain, localhost",
	"mynetworks_style":                      "${{$compatibility_level} <level {2} ? {subnet} : {host}}",
	"inet_interfaces":                       "all",
	"inet_protocols":                        "all",
	"default_transport":                     "smtp",
	"relay_transport":                       "relay",
	"default_database_type":                 "hash",
	"default_process_limit":                 "100",
	"default_destination_concurrency_limit": "20",
	"default_destination_recipient_limit":   "50",
	"default_destination_rate_delay":        "0s",
	"default_transport_rate_delay":          "0s",
	"minimal_backoff_time":                  "300s",
	"maximal_backoff_time":                  "4000s",
	"maximal_queue_lifetime":                "5d",
	"bounce_queue_lifetime":                 "5d",
	"delay_warning_time":                    "0h",
	"message_size_limit":                    "10240000",
	"hopcount_limit":                        "50",
	"smtp_helo_name":                        "$myhostname",
	"smtp_tls_key_file":                     "$smtp_tls_cert_file",
	"smtp_sasl_auth_enable":                 "no",
	"smtp_sender_dependent_authentication":  "no",
	"smtp_tls_wrappermode":                  "no",
	"smtp_use_tls":                          "no",
	"smtp_enforce_tls":                      "no",
	"smtp_tls_enforce_peername":             "yes",
	"smtp_tls_protocols":                    ">=TLSv1",
	"smtp_tls_mandatory_protocols":          ">=TLSv1",
	"smtp_tls_secure_cert_match":            "nexthop, dot-nexthop",
	"smtp_address_preference":               "any",
	"smtp_tcp_port":                         "smtp",
	"smtp_fallback_relay":                   "$fallback_relay",
	"smtp_never_send_ehlo":                  "no",
	"smtpd_banner":                          "$myhostname ESMTP $mail_name",
	"smtpd_client_connection_count_limit":   "50",
	"smtpd_recipient_limit":                 "1000",
	"smtpd_timeout":                         "300s",
	"smtpd_relay_restrictions": "${{$compatibility_level} <level {1} ? {} : {permit_mynetworks, " +
		"permit_sasl_authenticated, defer_unauth_destination}}",
	"smtpd_sasl_auth_enable":            "no",
	"smtpd_delay_reject":                "yes",
	"smtpd_tls_key_file":                "$smtpd_tls_cert_file",
	"smtpd_tls_eckey_file":              "$smtpd_tls_eccert_file",
	"smtpd_tls_wrappermode":             "no",
	"smtpd_tls_auth_only":               "no",
	"smtpd_use_tls":                     "no",
	"smtpd_enforce_tls":                 "no",
	"smtpd_forbid_bare_newline":         "no",
	"smtpd_tls_ask_ccert":               "no",
	"smtpd_tls_req_ccert":               "no",
	"smtp_connection_reuse_count_limit": "0",
	"smtp_connection_reuse_time_limit":  "300s",
}

// ofTransports are the ends of the names of parameters that the queue manager has for each transport.
var ofTransports = []string{"_destination_concurrency_limit", "_destination_recipient_limit", "_destination_rate_delay",
	"_transport_rate_delay"}

// ofQueueManager reports whether a parameter is one of them.
func ofQueueManager(name string) bool {
	return slices.ContainsFunc(ofTransports, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// defaultOf returns the default of a parameter, "" where there is none. TRANSPORT_destination_concurrency_limit and its
// like take that of default_destination_concurrency_limit.
func defaultOf(name string) string {
	if d, ok := defaults[name]; ok {
		return d
	}
	for _, suffix := range ofTransports {
		if strings.HasSuffix(name, suffix) && name != "default"+suffix {
			return "$default" + suffix
		}
	}
	return ""
}
