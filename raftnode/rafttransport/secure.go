package rafttransport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"

	"github.com/ringrift/ringlog/internal/certs"
)

// exporterLabel names what the proofs of a connection over TLS cover of it.
const exporterLabel = "EXPORTER-ringlog-raft-handshake"

// errPlainPeer is the error of a dial with TLS at a node that has none, where TLS is optional.
var errPlainPeer = errors.New("the peer has no TLS")

// secureDialled makes a dialled connection one of TLS, and gives h what it has to know of it.
func (s *stream) secureDialled(c *conn, h *handshake) error {
	secured := tls.Client(c.pace, s.opts.TLS.MutualConfig())
	err := s.secure(c, h, secured, x509.ExtKeyUsageServerAuth)
	// What answers is no TLS: a node without it refuses, in its own protocol.
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain && s.opts.TLSOptional {
		return errPlainPeer
	} else if plain {
		return refusef(ErrNoTLS, "%s has TLS, the node at %s has none", h.self.NodeID, c.raw.RemoteAddr())
	}
	return err
}

// secureAccepted is secureDialled for an accepted connection. Its first byte says whether it is TLS.
func (s *stream) secureAccepted(c *conn, h *handshake) error {
	if s.opts.TLS == nil {
		return nil
	}
	peeked, isTLS, err := certs.Peek(c.pace)
	if err != nil {
		return err
	}
	var refusal error
	if isTLS {
		secured := tls.Server(peeked, s.opts.TLS.MutualConfig())
		refusal = s.secure(c, h, secured, x509.ExtKeyUsageClientAuth)
		if refusal == nil || !secured.ConnectionState().HandshakeComplete {
			return refusal
		}
	} else {
		c.Conn, h.rw = peeked, peeked
		if s.opts.TLSOptional {
			return nil
		}
		refusal = refusef(ErrNoTLS, "%s takes raft connections over TLS alone", h.self.NodeID)
	}
	// Who it says it is makes the record of the refusal better; whatever else is wrong with it counts less.
	if _, err := h.readHello(); err != nil && !isRefusal(err) {
		return err
	}
	return refusal
}

// secure makes the handshake of TLS, in which the peer acts in a role, and verifies the peer's certificate.
func (s *stream) secure(c *conn, h *handshake, secured *tls.Conn, as x509.ExtKeyUsage) error {
	c.Conn, h.rw = secured, secured
	if err := secured.Handshake(); err != nil {
		return tlsRefusal(err)
	}
	state := secured.ConnectionState()
	id, err := s.opts.TLS.NodeOf(state, as)
	if err != nil {
		return refusef(reasonOfCertificate(err), "%v", err)
	}
	h.certified = id
	h.binding, err = state.ExportKeyingMaterial(exporterLabel, nil, proofLen)
	return err
}

// tlsRefusal returns the error of a handshake of TLS as a refusal, unless it is one of the network.
func tlsRefusal(err error) error {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	var network net.Error
	// An alert is a net.OpError, too, but a final one.
	if plain || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		(errors.As(err, &network) && network.Timeout()) {
		return err
	}
	return refusef(ErrUnfitForNode, "%v", err)
}

// reasonOfCertificate returns the sentinel for what is wrong with a certificate.
func reasonOfCertificate(err error) error {
	if reason := sentinelOf(err); reason != ErrNotAdmitted {
		return reason
	}
	return ErrUnfitForNode
}

// isRefusal reports whether err is a refusal, by either side.
func isRefusal(err error) bool {
	_, is := errors.AsType[*RefusedError](err)
	return is
}
