package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Remedy returns what whoever calls a node can do about an error of its connection, "" for errors that are not of TLS.
func Remedy(err error) string {
	// Each may be wrapped by others, at any depth.
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	name, other := errors.AsType[x509.HostnameError](err)
	invalid, bad := errors.AsType[x509.CertificateInvalidError](err)
	alert, answered := errors.AsType[*net.OpError](err)
	// The first that fits: an alert is the least specific, as TLS has one for many reasons.
	switch {
	case plain || errors.Is(err, http.ErrSchemeMismatch):
		return "the node serves plain HTTP: give its address as http://…"
	case unknown:
		return "the node's certificate is of a CA that is not trusted here: give the cluster's with --tls-ca FILE, " +
			"RINGLOG_TLS_CA, or TLS of the client's configuration"
	case other:
		return fmt.Sprintf("the node has a certificate, but not of the name %s: use one of its names in the endpoints, or "+
			"make it one with --host %[1]s", name.Host)
	case bad && invalid.Reason == x509.Expired:
		return "the node's certificate has expired, or the clock of this machine is wrong: make a new one with " +
			"ringlog cert node, which the node takes in by itself"
	case answered && alert.Op == "remote error":
		return "the node refuses the certificate that it was shown: give one that the cluster's CA has signed and that " +
			"has not expired, with --tls-cert and --tls-key, or TLS of the client's configuration"
	}
	return ""
}
