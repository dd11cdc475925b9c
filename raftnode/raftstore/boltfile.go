package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// bbolt maps its file and trusts it: a file that is too short is a SIGBUS, and
// a page that it cannot decode is a panic, which while opening may even be in a
// goroutine of bbolt's own where nobody can recover it. So the file's structure
// is read and checked here before bbolt opens it. Integers are in native byte order.
//
//	file:    meta 0 | meta 1 | page 2 | page 3 …            page i is at i * page size
//
//	page:    id 8 | flags 2 | count 2 | overflow 4 | content      overflow more pages belong to it
//	meta:    magic 4 | version 4 | page size 4 | flags 4 | root page 8 | sequence 8 |
//	         freelist 8 | high water 8 | txid 8 | FNV-64a 8
//	branch:  count * (pos 4 | key size 4 | page 8), keys                      pos counts from its element
//	leaf:    count * (flags 4 | pos 4 | key size 4 | value size 4), keys and values
//	bucket:  a leaf value with flag 1: root page 8 | sequence 8, then, if root is 0, a leaf page inline
const (
	pageHeader  = 16
	elementSize = 16
	bucketSize  = 16
	metaSize    = 64
	metaSummed  = metaSize - 8

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
	flagBucket   = 0x01
)

var native = binary.NativeEndian

// boltFile is a bolt file under inspection.
type boltFile struct {
	data     []byte // the file, mapped
	pageSize int64
	meta     boltMeta
	reached  []uint64           // one bit per page: the freelist or the tree has reached it
	wanted   map[string]visitor // the buckets that must exist
	found    map[string]bool    // the buckets that exist
}

// visitor gets each key of a bucket that is not a bucket itself, in order, and the size of
// its value; key is valid during the call only.
type visitor func(key []byte, size int) error

// boltMeta is what a meta page says. highWater is the number of pages; root and freelist are pages.
type boltMeta struct{ pageSize, root, freelist, highWater, txid uint64 }

// checkBoltFile returns ErrDamaged for what would make bbolt fail on the file at path, and for a bucket of
// wanted that is missing; ErrInUse if another process has the file open for writing. It calls the visitor
// of each wanted bucket, unless it is nil, with the bucket's keys.
func checkBoltFile(path string, wanted map[string]visitor) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	defer f.Close()
	// bbolt locks the file it writes. Without the lock a page might change while it is checked.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return inUse(path, err)
	}
	data, err := mapFile(f)
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	defer unix.Munmap(data)
	b := &boltFile{data: data, wanted: wanted, found: map[string]bool{}}
	// A page that the disk cannot read is a memory fault here.
	err = protect(b.check)
	switch {
	case errors.Is(err, errPanicked):
		return damaged(path, "it cannot be read to its end: "+err.Error())
	case err != nil:
		return damaged(path, err.Error())
	}
	return nil
}

// mapFile maps f into memory: reading the millions of pages of a long log one by one takes
// longer. What the disk cannot read is a memory fault, which protect turns into an error.
// An empty file gives nil.
func mapFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

// inUse wraps err as datadir.ErrInUse.
func inUse(path string, err error) error {
	return fmt.Errorf("open %s: %w: %w: stop the process that has it open", path, datadir.ErrInUse, err)
}

// check checks the whole file: the metas, the free pages, and the tree of buckets with all keys.
func (b *boltFile) check() error {
	if len(b.data) == 0 {
		return errors.New("it is empty")
	}
	if err := b.readMetas(); err != nil {
		return err
	}
	// Pages beyond the end of the file would be a SIGBUS.
	if need := int64(b.meta.highWater) * b.pageSize; int64(len(b.data)) < need {
		return fmt.Errorf("it is cut: %d bytes of %d", len(b.data), need)
	}
	b.reached = make([]uint64, b.meta.highWater/64+1)
	// The free pages come first: the tree then finds those that it uses, too.
	if err := b.checkFreelist(); err != nil {
		return err
	}
	// The root is a bucket that holds only buckets, so it needs no visitor.
	if err := b.walk(b.meta.root, nil, nil, nil); err != nil {
		return err
	}
	for name := range b.wanted {
		if !b.found[name] {
			return fmt.Errorf("its bucket %q is missing", name)
		}
	}
	return nil
}

// readMetas takes the newer of the two metas. Both must be whole: a meta fits a
// disk sector, so a crash leaves the old or the new one, and falling back from
// a damaged one would undo the last write, which may be a vote.
func (b *boltFile) readMetas() error {
	m0, err := b.readMeta(0)
	if err != nil {
		return fmt.Errorf("meta page 0: %w", err)
	}
	m1, err := b.readMeta(int64(m0.pageSize))
	if err != nil {
		return fmt.Errorf("meta page 1: %w", err)
	}
	b.pageSize, b.meta = int64(m0.pageSize), m0
	// Transactions are numbered, and write the two metas in turn.
	if m1.txid > m0.txid {
		b.meta = m1
	}
	return nil
}

// readMeta reads and checks the meta page at byte off of the file.
func (b *boltFile) readMeta(off int64) (m boltMeta, err error) {
	if off < 0 || off > int64(len(b.data))-pageHeader-metaSize {
		return m, errors.New("it is cut")
	}
	raw := b.data[off:]
	flags, raw := native.Uint16(raw[8:]), raw[pageHeader:]
	// The checksum covers the fields before it, and not the page's header.
	h := fnv.New64a()
	h.Write(raw[:metaSummed])
	switch {
	case flags != flagMeta || native.Uint32(raw) != boltMagic:
		return m, errors.New("it is not a meta page")
	case native.Uint32(raw[4:]) != boltVersion:
		return m, fmt.Errorf("its version is %d", native.Uint32(raw[4:]))
	case native.Uint64(raw[metaSummed:]) != h.Sum64():
		return m, errors.New("its checksum differs")
	}
	return boltMeta{
		pageSize:  uint64(native.Uint32(raw[8:])),
		root:      native.Uint64(raw[16:]),
		freelist:  native.Uint64(raw[32:]),
		highWater: native.Uint64(raw[40:]),
		txid:      native.Uint64(raw[48:]),
	}, nil
}

// checkFreelist marks the stored list of free pages as reached, and those pages: bbolt overwrites them,
// so the tree must not use them.
func (b *boltFile) checkFreelist() error {
	if b.meta.freelist == noFreelist {
		return nil
	}
	p, err := b.page(b.meta.freelist)
	if err != nil {
		return err
	}

	// A list that is too long for the page's count has its length before it.
	first, count := int64(pageHeader), int64(p.count)
	if p.count == 0xFFFF {
		raw, err := p.slice(first, 8)
		if err != nil {
			return err
		}
		first, count = first+8, int64(native.Uint64(raw))
	}
	if p.flags != flagFreelist || count < 0 || count > int64(len(p.data))/8 {
		return fmt.Errorf("page %d is not a list of free pages", p.id)
	}
	ids, err := p.slice(first, 8*count)
	if err != nil {
		return err
	}

	// A free page that is also reached by the tree would be overwritten.
	for ; len(ids) > 0; ids = ids[8:] {
		if err := b.reach(native.Uint64(ids), 0); err != nil {
			return err
		}
	}
	return nil
}

// walk checks the pages below id, whose keys are in [low, high), and the
// buckets in them.
func (b *boltFile) walk(id uint64, low, high []byte, visit visitor) error {
	p, err := b.page(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case flagBranch:
		return b.walkBranch(p, low, high, visit)
	case flagLeaf:
		return b.walkLeaf(p, low, high, visit)
	}
	return fmt.Errorf("page %d is neither branch nor leaf", id)
}

// walkBranch checks the keys of a branch and walks its children. Each child is walked once the next key, which
// bounds its keys, is known.
func (b *boltFile) walkBranch(p boltPage, low, high []byte, visit visitor) error {
	if p.count == 0 {
		return fmt.Errorf("page %d is a branch without keys", p.id)
	}
	if err := p.checkElements(); err != nil {
		return err
	}
	child, key := uint64(0), low
	for i := range p.count {
		e := p.element(i)
		next, err := p.orderedKey(e, key, i == 0, high)
		if err != nil {
			return err
		}
		// Where this element's keys begin, those of the child before end.
		if i > 0 {
			if err := b.walk(child, key, next, visit); err != nil {
				return err
			}
		}
		child, key = e.child, next
	}
	return b.walk(child, key, high, visit)
}

// walkLeaf checks the keys and values of a leaf, passes the keys to visit and walks the buckets in it.
func (b *boltFile) walkLeaf(p boltPage, low, high []byte, visit visitor) error {
	if err := p.checkElements(); err != nil {
		return err
	}
	// Keys ascend, the first one from low on.
	key := low
	for i := range p.count {
		e := p.element(i)
		var err error
		key, err = p.orderedKey(e, key, i == 0, high)
		if err != nil {
			return err
		}
		switch {
		case !p.holds(e.value, e.valueSize):
			err = fmt.Errorf("page %d has a value that leaves it", p.id)
		case e.flags&flagBucket != 0:
			err = b.walkBucket(p, e, string(key))
		case visit != nil:
			err = visit(key, int(e.valueSize))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkBucket checks the bucket that the element e of p holds, and everything below it.
func (b *boltFile) walkBucket(p boltPage, e boltElement, name string) error {
	if e.valueSize < bucketSize {
		return fmt.Errorf("page %d has a bucket that is cut", p.id)
	}
	raw, err := p.slice(e.value, e.valueSize)
	if err != nil {
		return err
	}
	b.found[name] = true
	if root := native.Uint64(raw); root != 0 {
		return b.walk(root, nil, nil, b.wanted[name])
	}

	// A small bucket is a page within this one.
	inline, err := openPage(p.id, raw[bucketSize:])
	if err != nil {
		return err
	}
	if inline.flags != flagLeaf {
		return fmt.Errorf("page %d has a bucket that is not a leaf", p.id)
	}
	return b.walkLeaf(inline, nil, nil, b.wanted[name])
}

// page reads page id and notes that it and its overflow were reached.
func (b *boltFile) page(id uint64) (boltPage, error) {
	if id < 2 || id >= b.meta.highWater {
		return boltPage{}, fmt.Errorf("page %d is outside of the file", id)
	}
	// The header is in the first page. Its overflow is trusted once reach has found it inside the file.
	off := int64(id) * b.pageSize
	p, err := openPage(id, b.data[off:off+b.pageSize])
	if err != nil {
		return p, err
	}
	if stored := native.Uint64(p.data); stored != id {
		return p, fmt.Errorf("page %d says it is page %d", id, stored)
	}
	if err := b.reach(id, uint64(p.overflow)); err != nil {
		return p, err
	}
	p.data = b.data[off : off+(int64(p.overflow)+1)*b.pageSize]
	return p, nil
}

// reach marks page id and the overflow pages after it. It fails on one outside of the file, or one that was
// marked before.
func (b *boltFile) reach(id, overflow uint64) error {
	if id < 2 || id+overflow >= b.meta.highWater {
		return fmt.Errorf("page %d with %d more is outside of the file", id, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if b.reached[i/64]&(1<<(i%64)) != 0 {
			return fmt.Errorf("page %d is used twice", i)
		}
		b.reached[i/64] |= 1 << (i % 64)
	}
	return nil
}

// boltPage is a page with its overflow, or the page of an inline bucket within another one.
type boltPage struct {
	id           uint64
	flags, count uint16
	overflow     uint32
	data         []byte
}

// boltElement is one element of a branch or a leaf.
type boltElement struct {
	flags              uint32
	child              uint64 // of a branch
	key, value         int64  // from the page's start
	keySize, valueSize int64
}

// openPage decodes the header of the page that data begins with.
func openPage(id uint64, data []byte) (boltPage, error) {
	if len(data) < pageHeader {
		return boltPage{}, fmt.Errorf("page %d has a bucket that is cut", id)
	}
	return boltPage{
		id:    id,
		flags: native.Uint16(data[8:]), count: native.Uint16(data[10:]), overflow: native.Uint32(data[12:]),
		data: data,
	}, nil
}

// holds reports whether n bytes from off on are inside of the page; both may be any number.
func (p boltPage) holds(off, n int64) bool {
	size := int64(len(p.data))
	return off >= 0 && n >= 0 && off <= size && n <= size-off
}

// slice returns n bytes of the page from off on, or an error if they leave it.
func (p boltPage) slice(off, n int64) ([]byte, error) {
	if !p.holds(off, n) {
		return nil, fmt.Errorf("page %d points out of itself", p.id)
	}
	return p.data[off : off+n], nil
}

// checkElements reports elements that leave the page; element may be called after it.
func (p boltPage) checkElements() error {
	_, err := p.slice(pageHeader, int64(p.count)*elementSize)
	return err
}

// element decodes element i. Its key and value may still leave the page: see slice and holds.
func (p boltPage) element(i uint16) boltElement {
	off := pageHeader + int64(i)*elementSize
	raw := p.data[off:]
	// A branch has the page of a child where a leaf has a value.
	if p.flags == flagBranch {
		return boltElement{
			key:     off + int64(native.Uint32(raw)),
			keySize: int64(native.Uint32(raw[4:])),
			child:   native.Uint64(raw[8:]),
		}
	}
	e := boltElement{
		flags:     native.Uint32(raw),
		key:       off + int64(native.Uint32(raw[4:])),
		keySize:   int64(native.Uint32(raw[8:])),
		valueSize: int64(native.Uint32(raw[12:])),
	}
	e.value = e.key + e.keySize
	return e
}

// orderedKey reads e's key and requires after < key < high; inclusive lets key
// equal after. Nil is no bound.
func (p boltPage) orderedKey(e boltElement, after []byte, inclusive bool, high []byte) ([]byte, error) {
	key, err := p.slice(e.key, e.keySize)
	if err != nil {
		return nil, err
	}
	// Without a lower bound any key is after it.
	order := 1
	if after != nil {
		order = bytes.Compare(key, after)
	}
	if len(key) == 0 || order < 0 || (order == 0 && !inclusive) || (high != nil && bytes.Compare(key, high) >= 0) {
		return nil, fmt.Errorf("page %d has keys out of order", p.id)
	}
	return key, nil
}
