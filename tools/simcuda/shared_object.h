// Physical objects that other processes can reach. A device's memory is a file (Arena); a record in
// that file, behind the device's bytes, says where in it an object lies. Who has the file and the
// record's position can map the object, whether the process it is of still runs or not.
//
// - A shareable descriptor is the file, opened anew, whose offset is the record's position.
// - Who holds an object, by a descriptor or an import, holds a read lock on the record's first byte
//   through an open file of his own. The kernel drops it with the last descriptor of that open
//   file, also when the process is killed. The owner gives the memory back when nobody else holds
//   it.
//
// Descriptors and records come from outside: nothing in them is trusted. Needs no lock.
#ifndef WEIR_TOOLS_SIMCUDA_SHARED_OBJECT_H_
#define WEIR_TOOLS_SIMCUDA_SHARED_OBJECT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/simcuda/simcuda.h"

namespace weir::sim {

struct SharedObject {
  struct Extent {
    uint64_t offset;  // in the file
    uint64_t bytes;
  };
  uint64_t bytes = 0;
  int device = 0;                 // ordinal, in the process whose memory it is
  unsigned int handle_types = 0;  // that it may be exported as
  bool rdma_capable = false;
  std::vector<Extent> extents;  // whole pages, in order
};

// Makes descriptors of the file safe to map for others: it never shrinks. False if refused.
WEIR_SIM_API bool SealFile(int file);
// Writes a record at the end of the file, which grows. 0 if the system refuses.
WEIR_SIM_API uint64_t WriteRecord(int file, const SharedObject& object);
// Nothing if there is no record at the position, or one that does not describe what is in the file.
std::optional<SharedObject> ReadRecord(int file, uint64_t position);
// Removes the record, so that nobody finds it any more.
void EraseRecord(int file, uint64_t position);

// The file opened anew, holding the object, its offset at the record; -1 if the system refuses.
int OpenHolding(int file, uint64_t position);
// Whether somebody holds the object, other than through this very open file.
bool HeldElsewhere(int file, uint64_t position);
// Where the descriptor's offset is; nothing if it is no file.
std::optional<uint64_t> PositionOf(int file);
bool SameFile(int one, int other);
// Identifies a file of this system as long as it is there. 0 if the descriptor is bad.
uint64_t FileId(int file);
// A descriptor of another process of this user, opened anew; -1 if it cannot be had.
int OpenOfProcess(int process, int file);

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_SHARED_OBJECT_H_
