package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"

	"github.com/ringrift/ringlog/internal/kv"
)

// tx is the batch of one entry. Whatever is written to it goes into the digest,
// so the digest chains every state change. It cannot be read: a part of the decision that needs
// what the entry has changed remembers it.
type tx struct {
	batch kv.Batch
	sum   hash.Hash // over the digest before, the entry's place, and what was written
	err   error     // the first one; the entry must not be stored then
}

// newTx begins the batch of an entry. Its digest begins with the one before, which chains them.
func newTx(db kv.DB, before Sum, index, term uint64) *tx {
	t := &tx{batch: db.NewBatch(), sum: sha256.New()}
	t.sum.Write(before[:])
	t.digestNumber(index)
	t.digestNumber(term)
	return t
}

// digestNumber takes a number into the digest.
func (t *tx) digestNumber(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	t.sum.Write(b[:])
}

// digestChange takes one change into the digest; the lengths keep neighbours apart.
func (t *tx) digestChange(what byte, key, value []byte) {
	t.sum.Write([]byte{what})
	t.digestNumber(uint64(len(key)))
	t.sum.Write(key)
	t.digestNumber(uint64(len(value)))
	t.sum.Write(value)
}

// keepError remembers the first error, which finish returns.
func (t *tx) keepError(err error) {
	if t.err == nil && err != nil {
		t.err = fmt.Errorf("write: %w", err)
	}
}

// Set implements log.Writer.
func (t *tx) Set(key, value []byte) {
	t.keepError(t.batch.Set(key, value))
	t.digestChange('s', key, value)
}

// SetBlock implements log.Writer. Only the checksum at the start of the body goes
// into the digest: the rest would cost more than all other work together.
func (t *tx) SetBlock(key, value []byte, head int) {
	const codecAndChecksum = 5
	t.keepError(t.batch.Set(key, value))
	t.digestChange('b', key, value[:min(len(value), head+codecAndChecksum)])
}

// DeleteRange implements log.Writer.
func (t *tx) DeleteRange(from, to []byte) {
	t.keepError(t.batch.DeleteRange(from, to))
	t.digestChange('r', from, to)
}

// Delete deletes a key, stored or not.
func (t *tx) Delete(key []byte) {
	t.keepError(t.batch.Delete(key))
	t.digestChange('d', key, nil)
}

// setJSON stores a value as JSON.
func (t *tx) setJSON(key []byte, v any) {
	t.setEncoded(key, func() ([]byte, error) { return json.Marshal(v) })
}

// setEncoded stores what encode returns, and keeps its error.
func (t *tx) setEncoded(key []byte, encode func() ([]byte, error)) {
	value, err := encode()
	t.keepError(err)
	t.Set(key, value)
}

// finish writes the digest and the meta record, whose own digest field is what was
// summed up to then, and returns the error that stuck.
func (t *tx) finish(m *meta) error {
	t.sum.Sum(m.Digest[:0])
	// The digest is not part of itself: neither its ring nor the meta record goes into the sum.
	ring := binary.BigEndian.AppendUint16([]byte{prefixDigest}, uint16(m.Applied%digestsKept))
	t.keepError(t.batch.Set(ring, append(binary.BigEndian.AppendUint64(nil, m.Applied), m.Digest[:]...)))
	value, err := m.encode()
	t.keepError(err)
	t.keepError(t.batch.Set([]byte{prefixMeta}, value))
	return t.err
}
