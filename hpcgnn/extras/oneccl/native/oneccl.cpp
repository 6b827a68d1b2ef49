// The few calls of oneCCL that hpcgnn needs, as C functions for ctypes.
//
// env/build-oneccl.sh compiles this file on the user's machine, and links it to the CPU archive of the package
// oneccl-devel. No exception leaves: a function that fails returns null or -1, and hpo_error() says why.
// oneCCL has threads of its own that move what was begun here, so a request advances while its rank computes.

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <oneapi/ccl.hpp>

namespace {

thread_local std::string failure;

// Of all ranks. Counts are kept beside the event: oneCCL may read them until it is complete.
struct Group {
    ccl::shared_ptr_class<ccl::kvs> meeting;
    std::unique_ptr<ccl::communicator> ranks;
    int size = 0;
};

struct Request {
    std::vector<size_t> sent, received;
    ccl::event event;
};

// What `call` returns, or `otherwise` and the reason.
template <class Result, class Call>
Result guarded(Result otherwise, Call call) {
    try {
        return call();
    } catch (const std::exception& error) {
        failure = error.what();
    } catch (...) {
        failure = "an error of an unknown kind";
    }
    return otherwise;
}

// In the order of TYPES and OPS in hpcgnn/extras/oneccl/library.py.
constexpr ccl::datatype types[] = {ccl::datatype::float32, ccl::datatype::float64, ccl::datatype::int32,
                                   ccl::datatype::int64};
constexpr ccl::reduction operations[] = {ccl::reduction::sum, ccl::reduction::max, ccl::reduction::min};

}  // namespace

extern "C" {

// The hash of this file that the build script was given.
const char* hpo_sources() { return HPO_SOURCES; }

const char* hpo_error() { return failure.c_str(); }

// The version of oneCCL that is linked here.
const char* hpo_version() {
    static const std::string text = [] {
        const ccl::library_version found = ccl::get_library_version();
        return std::to_string(found.major) + "." + std::to_string(found.minor) + "." + std::to_string(found.update);
    }();
    return text.c_str();
}

// Bytes of the address by which the ranks meet.
size_t hpo_address_size() { return ccl::kvs::address_max_size; }

// A group that nobody has joined. address: written where `first`, that is on one rank; read on the others.
Group* hpo_open(char* address, int first) {
    return guarded<Group*>(nullptr, [&] {
        ccl::init();
        auto group = std::make_unique<Group>();
        if (first) {
            group->meeting = ccl::create_main_kvs();
            const auto made = group->meeting->get_address();
            std::memcpy(address, made.data(), made.size());
        } else {
            ccl::kvs::address_type given;
            std::memcpy(given.data(), address, given.size());
            group->meeting = ccl::create_kvs(given);
        }
        return group.release();
    });
}

// Wait for all ranks to join. 0, or -1.
int hpo_join(Group* group, int size, int rank) {
    return guarded(-1, [&] {
        group->ranks = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, group->meeting));
        group->size = size;
        return 0;
    });
}

// All requests must be complete, and MPI, where it carries the messages, not finished. 0, or -1.
int hpo_close(Group* group) {
    return guarded(-1, [&] {
        delete group;
        return 0;
    });
}

// Bytes for every rank, one part after another, against those from every rank.
Request* hpo_exchange(Group* group, const void* given, const size_t* sent, void* result, const size_t* received) {
    return guarded<Request*>(nullptr, [&] {
        auto request = std::make_unique<Request>();
        request->sent.assign(sent, sent + group->size);
        request->received.assign(received, received + group->size);
        request->event = ccl::alltoallv(given, request->sent, result, request->received, ccl::datatype::uint8,
                                        *group->ranks);
        return request.release();
    });
}

// Combine numbers over all ranks, in place.
Request* hpo_reduce(Group* group, void* numbers, size_t count, int type, int operation) {
    return guarded<Request*>(nullptr, [&] {
        auto request = std::make_unique<Request>();
        request->event = ccl::allreduce(numbers, numbers, count, types[type], operations[operation], *group->ranks);
        return request.release();
    });
}

// Whether a request is complete: 1 or 0; -1 if it failed. One that was complete or failed is gone afterwards.
int hpo_test(Request* request) {
    const int found = guarded(-1, [&] { return request->event.test() ? 1 : 0; });
    if (found != 0) delete request;
    return found;
}

// Wait for a request, which is gone afterwards. 0, or -1.
int hpo_wait(Request* request) {
    const int found = guarded(-1, [&] {
        request->event.wait();
        return 0;
    });
    delete request;
    return found;
}

}  // extern "C"
