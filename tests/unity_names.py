"""The names that those who come from Unity look for: what its documentation calls things, nothing else."""

MESSAGES = """
    Awake OnEnable Reset Start FixedUpdate Update LateUpdate OnGUI OnDisable OnDestroy OnValidate
    OnApplicationFocus OnApplicationPause OnApplicationQuit OnBecameVisible OnBecameInvisible OnPreCull
    OnPreRender OnRenderObject OnWillRenderObject OnPostRender OnRenderImage OnDrawGizmos
    OnDrawGizmosSelected OnMouseDown OnMouseUp OnMouseUpAsButton OnMouseDrag OnMouseEnter OnMouseOver
    OnMouseExit OnCollisionEnter OnCollisionStay OnCollisionExit OnCollisionEnter2D OnCollisionStay2D
    OnCollisionExit2D OnTriggerEnter OnTriggerStay OnTriggerExit OnTriggerEnter2D OnTriggerStay2D
    OnTriggerExit2D OnControllerColliderHit OnJointBreak OnJointBreak2D OnParticleCollision
    OnParticleTrigger OnParticleSystemStopped OnAnimatorIK OnAnimatorMove OnAudioFilterRead
    OnTransformChildrenChanged OnTransformParentChanged
""".split()

COROUTINES = """
    StartCoroutine StopCoroutine StopAllCoroutines Invoke InvokeRepeating CancelInvoke WaitForSeconds
    WaitForSecondsRealtime WaitForFixedUpdate WaitForEndOfFrame WaitUntil WaitWhile Awaitable.NextFrameAsync
""".split()

API = """
    BackendType BackendType.CPU BackendType.GPUCompute BackendType.GPUPixel CPUTensorData CPUTensorData.Pin
    CPUTensorData.fence CPUTensorData.reuse CommandBufferWorkerExtensions.ScheduleWorker ComputeTensorData
    ComputeTensorData.Pin ComputeTensorData.buffer DynamicTensorShape Functional FunctionalGraph
    FunctionalGraph.AddInput FunctionalGraph.AddOutput FunctionalGraph.Compile FunctionalTensor
    FunctionalTensor.ToString ITensorData.Download ITensorData.backendType ITensorData.maxCapacity Model
    Model.inputs Model.layers Model.outputs ModelLoader ModelLoader.Load ModelWriter ModelWriter.Save
    NativeTensorArray Quantization.ModelQuantizer Tensor Tensor.DownloadToArray Tensor.DownloadToNativeArray
    Tensor.IsReadbackRequestDone Tensor.ReadbackAndClone Tensor.ReadbackAndCloneAsync Tensor.ReadbackRequest
    Tensor.Upload Tensor.dataOnBackend TensorShape TensorShape.length TextureConverter.RenderToScreen
    TextureConverter.ToTensor TextureConverter.ToTexture TextureTensorData.CompleteAllPendingOperations
    TextureTransform TextureTransform.SetTensorLayout Worker Worker.CopyOutput Worker.Dispose
    Worker.PeekOutput Worker.Schedule Worker.ScheduleIterable Worker.SetInput
""".split()

IN_EXAMPLES = """
    AddInput AddInputs AddOutput AsReadOnlyNativeArray AsReadOnlySpan Compile CopyOutput Dispose
    DownloadToArray DownloadToNativeArray ExecuteCommandBuffer Forward ForwardWithCopy IsReadbackRequestDone
    Load PeekOutput QuantizeWeights ReadbackAndClone ReadbackAndCloneAsync ReadbackRequest ReduceSum
    RenderToScreen RenderToTexture Reshape Save Schedule ScheduleIterable ScheduleWorker SetInput Softmax
    ToTensor Upload
""".split()
"""Methods that the manual's examples call, without their classes."""

LAYERS = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Bernoulli
    BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu Clip Compress Concat
    Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DepthToSpace DFT Div Dropout Einsum Elu
    Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND Gemm GlobalAveragePool GlobalMaxPool
    Greater GreaterOrEqual GridSample HammingWindow HannWindow Hardmax HardSigmoid HardSwish Identity
    InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LRN LSTM
    MatMul Max MaxPool Mean MelWeightMatrix Min Mod Mish Mul Multinomial Neg NonMaxSuppression NonZero Not
    OneHot Or Pad Pow PRelu RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare Relu Reshape Resize RoiAlign Round Scatter ScatterElements ScatterND Selu Shape Shrink
    Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze STFT Sub Sum
    Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor Atan2 BroadcastArgs
    Dense DequantizeUint8 FloorDiv Gelu GeluFast MatMul2D MoveDim Narrow NotEqual RandomChoice Relu6
    RMSNormalization ScalarMad Select SliceSet Square TrueDiv Swish ScaleBias
""".split()

FUNCTIONAL = """
    AsStrided Zeros ZerosLike Ones OnesLike ARange LinSpace LogSpace Full FullLike Concat Gather IndexSelect
    MoveDim Narrow NonZero Permute Reshape Select Scatter SelectScatter SliceScatter ScatterAdd Split
    Squeeze Stack Take Tile Transpose Unsqueeze Where Bernoulli Multinomial Normal NormalLike Rand RandLike
    RandInt RandIntLike RandN RandNLike RandomChoice Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh
    BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clamp Cos Cosh Deg2Rad Div Erf Exp Expm1 FloatPower
    Floor FloorDivide FMod Frac Lerp Log Log10 Log1P Log2 LogAddExp LogicalAnd LogicalNot LogicalOr
    LogicalXor Mul Neg Positive Pow Rad2Deg Reciprocal Remainder Round RSqrt Sign Sin Sinh Sqrt Square Tan
    Tanh Trunc ArgMax ArgMin ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSumExp ReduceMean ReduceProd
    ReduceSum ReduceSumSquare ReduceVariance STFT BlackmanWindow HammingWindow HannWindow Equal GreaterEqual
    Greater IsFinite IsInf IsNaN LessEqual Less Max Min NotEqual TopK AtLeast1D AtLeast2D AtLeast3D
    BroadcastTo Clone CumSum Diagonal Einsum Flip FlipLR FlipUD Ravel TriL TriU MatMul Conv1D Conv2D Conv3D
    Conv1Transpose1D Conv1Transpose2D Conv1Transpose3D AvgPool1D AvgPool2D AvgPool3D MaxPool1D MaxPool2D
    MaxPool3D Relu HardSwish Relu6 Elu Selu Celu LeakyRelu PRelu Gelu Mish Softsign Softplus Softmax
    LogSoftmax Sigmoid HardSigmoid BatchNorm InstanceNorm LocalResponseNorm OneHot PixelShuffle
    PixelUnshuffle Interpolate GridSample NMS
""".split()
